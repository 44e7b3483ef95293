"""The pictures of docs/ideas, computed by the code that they explain: ``make pictures``.

One module an idea. ``draw(figure)`` asks the functions beside it for numbers, and those ask
fourge's own code; no number is typed in.
"""
