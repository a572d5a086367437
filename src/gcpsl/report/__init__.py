"""Reports: tables, figures and one page from run folders. Knows run folders, configs and studies; trains nothing."""

from gcpsl.report.making import Asked, Made, make_report

__all__ = ["Asked", "Made", "make_report"]
