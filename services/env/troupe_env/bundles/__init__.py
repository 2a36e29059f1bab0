"""Code that jobs bring along: a confined process for each bundle, which judges in its place."""
