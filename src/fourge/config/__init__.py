"""Run files: read whole, checked whole, and every mistake said in plain words."""
