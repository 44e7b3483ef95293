"""Events -> one self-contained page. Reads event files only, and never loads torch."""
