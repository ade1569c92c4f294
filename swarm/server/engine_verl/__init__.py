"""The engine ``verl``: Ray, FSDP2 or Megatron, and vLLM, from one node to many, behind the same port as the embedded engine.

The child process (``child``) is the driver: it owns a Ray session, a group of training workers and the rollout servers. Only
here are verl, ray and vllm imported, and only by modules that the child imports late: ``batches``, ``keys``, ``options``,
``balance`` and ``dependencies`` run without them.
"""
