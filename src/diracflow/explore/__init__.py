"""A local web page that shows a density: `diracflow explore`.

`picture` parses requests and evaluates the density, `explorer` answers requests, `server` is the
HTTP server. `page` holds the web page.
"""
