"""ReFrame's description of a machine without a batch system, whose ranks mpiexec starts. A site has its own."""

site_configuration = {
    "systems": [
        {
            "name": "here",
            "descr": "this machine",
            "hostnames": [".*"],
            "partitions": [
                {"name": "ranks", "scheduler": "local", "launcher": "mpiexec", "environs": ["builtin"], "max_jobs": 1},
            ],
        },
    ],
    "environments": [{"name": "builtin", "cc": "cc", "cxx": "", "ftn": "", "target_systems": ["here"]}],
}
