"""AdamW with a master weight that accumulates and moments that cannot vanish."""
