"""Results as text: for terminals, Markdown, CSV and LaTeX."""
