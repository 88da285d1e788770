"""One layer alone, as two short scripts."""
