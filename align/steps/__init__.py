"""Pure functions, one file for each arrow of the flow; they know no framework and open no files."""
