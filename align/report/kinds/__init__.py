"""One module a kind of document: `KIND_blocks` makes its blocks."""
