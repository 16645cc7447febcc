"""The library: what the commands do, local clusters for regression tests, and the plugin for pytest.

`harness` exports the functions of `harness.api.commands` and `harness.api.clusters`.
"""
