"""Other tools' result files, read into this project's schema."""
