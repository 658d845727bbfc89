"""A local web page that shows a density: `diracflow explore`.

`explorer` answers requests, `server` is the HTTP server. `page` holds the web page.
"""
