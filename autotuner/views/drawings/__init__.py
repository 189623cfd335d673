"""What each page shows, as values: a view takes a snapshot and gives figures, tables and sentences to a template."""
