from a3r.worker.site_settings import site_settings


def test_servers_get_the_machines_settings_and_no_secrets():
    environ = {
        "NCCL_SOCKET_IFNAME": "ib0",
        "HF_HOME": "/cache",
        "HF_TOKEN": "secret",
        "VLLM_API_KEY": "secret",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "secret",
        "RAY_AUTH_TOKEN_PATH": "/run/token",
        "RAY_JOB_ID": "01000000",
        "RAY_ADDRESS": "10.0.0.1:6379",
        "OPENAI_API_KEY": "secret",
        "PATH": "/bin",
    }
    kept = {"NCCL_SOCKET_IFNAME", "HF_HOME", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH"}
    assert set(site_settings(environ)) == kept


def test_a_machine_without_settings_gives_none():
    assert site_settings({}) == {}
