"""Builds the documentation site, as static pages: `./dev docs`."""
