"""What stands inside of wrong code: its functional calls, followed back by their values to the first that is wrong."""
