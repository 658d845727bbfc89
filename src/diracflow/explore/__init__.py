"""A local page on which one looks at a density: `diracflow explore`.

`controls` says what can be moved and how far, `query` reads what the page asks, `picture` evaluates
it, `explorer` answers, `server` speaks HTTP; `page` holds what the browser runs.
"""
