"""Outside checks of the swarm endpoint: SDKs, agent frameworks, a coding CLI and a fuzzer, each as its makers ship it.

Run ``make conformance``. Everything is installed from PyPI and npm into ``.conformance/`` at run time; nothing is vendored.
"""
