"""What is to be measured: recipes, references to models, draft lengths, forward modes."""
