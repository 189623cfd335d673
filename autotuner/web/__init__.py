"""The service: an API for programs and pages for people, read from a study store.

The door is `app.create_app` for a server and `whole_page.render` for one study as one file. It decides nothing: what a
study came to is said by `tuning.finals.standings`, in what words by `views`. Needs the extra "service".
"""
