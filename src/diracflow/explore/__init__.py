"""A local web page that shows a density: `diracflow explore`.

`controls` defines the ranges of the sliders, `query` parses requests, `picture` evaluates the
density, `explorer` answers requests, `server` is the HTTP server. `page` holds the web page.
"""
