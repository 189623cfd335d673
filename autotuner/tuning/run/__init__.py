"""A run of a study: propose, find, submit, wait for any, record, tell."""
