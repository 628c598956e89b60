"""report.html: one file that explains a result to somebody who was not there."""
