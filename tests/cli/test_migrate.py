"""`corral migrate`: what it prints, its documents and its exit codes."""

import json

from tests.cli.conftest import Shell
from tests.support.shell import Said


def _moved(shell: Shell, url: str, *words: str) -> Said:
    return shell(
        "migrate", "--from", f"{url}?queue=mail", "--to", f"{url}?protocol=bridgemq&queue=post", *words
    )


def test_jobs_are_moved_and_documents_say_so(shell: Shell, url: str) -> None:
    for number in range(3):
        assert shell("queue", "add", "mail", "send", json.dumps({"n": number})).code == 0
    assert shell("queue", "add", "mail", "send", "{}", "--priority", "3").code == 0
    refused = _moved(shell, url)
    assert refused.code == 2
    assert "1 of 4 jobs or schedules do not fit" in refused.err
    [dry] = _moved(shell, url, "--dry-run", "--json").documents
    assert (dry["count"], next(iter(dry["left"]))[:9]) == (3, "priority:")
    result = _moved(shell, url, "--adapt")
    assert result.code == 0, result
    assert result.out.startswith("4 jobs moved: 4 waiting\n")
    assert "verified: 4 left the source, 4 added at the target" in result.out
    nothing = _moved(shell, url, "--put-back")
    assert (nothing.code, "was interrupted; there is nothing to put back" in nothing.err) == (2, True)


def test_a_wrong_word_is_refused_in_one_sentence(shell: Shell, url: str) -> None:
    assert shell("queue", "add", "mail", "send", "{}").code == 0
    assert "--rename 'a' does not fit; write OLD=NEW" in _moved(shell, url, "--rename", "a").err
    result = shell("migrate", "--from", f"{url}?queue=absent", "--to", f"{url}?queue=post")
    assert (result.code, "there is no queue 'absent'" in result.err) == (2, True)
    away = shell("migrate", "--from", "redis://127.0.0.1:1?queue=a", "--to", f"{url}?queue=post")
    assert (away.code, "no server at redis://127.0.0.1:1" in away.err) == (3, True)
