"""The commands, one file a verb. Nothing here imports torch until a verb runs."""
