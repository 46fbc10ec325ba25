"""One module a command (or noun with its verbs): each has ``add_parser(subparsers)``, found by being here.

A command's parser sets the default ``run``, called with the parsed options; it gives the exit code (0 ok, 1 a finding).
Modules are imported for every command line: keep their imports cheap, and import what works inside ``run``.
"""
