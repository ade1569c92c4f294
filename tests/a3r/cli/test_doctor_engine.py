from a3r.cli.doctor_engine import engine_checks


def test_what_the_engines_own_doctor_refuses_is_one_failed_check():
    (check,) = engine_checks("vrel", smoke=False)
    assert (check.name, check.level) == ("engine vrel", "fail")
    assert "--engine verl" in check.hint
