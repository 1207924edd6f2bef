"""Stand-in until merged."""


def differs(expected, messages):
    return None
