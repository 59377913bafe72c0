from .report import Report


def picture(report: Report) -> str:
    return ""
