"""Which keys and texts hold secrets, and that they are left out and put back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rlframe.registry as registries
from rlframe.errors import CheckpointError
from rlframe.run.read_checkpoint import load_checkpoint
from rlframe.run.write_checkpoint import save_checkpoint
from rlframe.utils.field import Field
from rlframe.utils.secrets import Secrets, is_secret_name, redacted, redacted_keys

SECRET_NAMES = [
    'api_key', 'apiKey', 'API-KEY', 'ApiKey', 'x-api-key', 'APIKEY', 'MyAPIKey', 'WANDB_API_KEY', 'api.key', 'token',
    'hf_token', 'accessToken', 'TOKEN', 'token_value', 'secret', 'client_secret', 'my_secrets', 'secretKey', 'password',
    'db_password', 'dbpassword', 'passwordHash', 'PASSWD', 'user_passwd', 'pwd', 'dbPwd', 'passphrase', 'ssh_private_key',
    'privateKey', 'aws_secret_access_key', 'accesskey', 'credentials', 'credential', 'gcp_credentials', 'auth',
    'basic_auth', 'OAuth', 'bearer', 'bearer_token', 'Authorization', 'proxy-authorization',
]  # fmt: skip
HARMLESS_NAMES = [
    'tokenizer', 'tokenize', 'max_tokens', 'tokens', 'num_token', 'n_token', 'pad_token', 'token_size', 'token_dim',
    'author', 'authors', 'authority', 'authentic', 'authenticate', 'key', 'keys', 'keyboard', 'monkey', 'key_dim',
    'public_key', 'secretary', 'secretion', 'key_path', 'password_file', 'secret_mask', 'bear', 'auth_required', 'passed',
    'pass_rate', 'passive', 'forward', 'backward', 'reward', 'compass', 'cwd', 'pwm', 'credit', 'bearing', 'access',
    'accessible',
]  # fmt: skip
TEXTS = {
    'postgres://user:hunter2@host/db': '***',
    'see mongodb+srv://u:p@ss/w@host:1/?x=1 now': '***',
    'redis://:hunter2@host:6379/0': '***',
    'https://host:8080/@user': 'https://host:8080/@user',
    'https://host/a?n=1': 'https://host/a?n=1',
    'ssh://git@host/repo': 'ssh://git@host/repo',
    'module:Class': 'module:Class',
    'max_tokens=5': 'max_tokens=5',
}


def test_keys_that_name_a_secret_are_recognised_and_those_that_only_look_like_one_are_not() -> None:
    assert [name for name in SECRET_NAMES if not is_secret_name(name)] == []
    assert [name for name in HARMLESS_NAMES if is_secret_name(name)] == []
    config = {'token': 'hunter2', 'x': {'pwd': ['hunter2']}, 'tokenizer': 'value'}
    assert redacted(config) == {'token': '***', 'x': {'pwd': ['***']}, 'tokenizer': 'value'}


def test_urls_with_passwords_are_secret_and_no_other_text() -> None:
    for text, written in TEXTS.items():
        assert redacted({'address': text}) == {'address': written}
        assert redacted([text]) == [written]
        assert bool(redacted_keys({'address': written})) == (text != written)
        assert redacted_keys({'address': text}) == []


def test_what_stands_below_a_secret_name_is_secret_but_numbers_of_no_use_are_not() -> None:
    config = {'auth': {'user': ['bob'], 'pin': 1234, 'on': True, 'timeout': 2.5, 'realm': None, 'note': ''}}
    written = {'auth': {**config['auth'], 'user': ['***'], 'pin': '***'}}
    assert redacted(config) == written
    assert redacted_keys(written) == ['auth.user[0]', 'auth.pin']


def test_no_option_of_rlframe_itself_is_taken_for_a_secret() -> None:
    def names(options: Any) -> list[str]:
        below = [names(part) for part in options.values() if not isinstance(part, Field)]
        return [*options, *(name for part in below for name in part)]

    for registry in registries.REGISTRIES.values():
        for cls in map(registry.get, registry.names()):
            if hasattr(cls, 'config_fields'):
                assert [name for name in names(cls.config_fields()) if is_secret_name(name)] == []


CONFIG = {
    'env': {
        'kwargs': {
            'api_key': 'hunter2-key',
            'url': 'http://u:pa%40ss@host',
            'pin_secret': 123456,
            'pwd': 'abc',
        }
    }
}
STATE = {
    'key': 'hunter2-key',
    'url': 'http://u:pa%40ss@host',
    'pin': 123456,
    'short': 'abc',
    'not': ['abcd', 12345, 'hunter2'],
}


def test_a_saved_state_holds_names_of_secrets_and_is_whole_again_where_they_are_given(tmp_path: Path) -> None:
    secrets = Secrets(CONFIG)
    save_checkpoint(
        tmp_path / 'a', STATE, {'env': 'hunter2-key'}, buffer={'x': 'hunter2-key'}, secrets=secrets
    )
    for file in (tmp_path / 'a').iterdir():
        data = file.read_bytes()
        for secret in (b'hunter2-key', b'pa%40ss', b'123456', b'"abc"'):
            assert secret not in data, file
    state, _ = load_checkpoint(tmp_path / 'a', secrets=secrets)
    assert state.pop('replay_buffer') == {'x': 'hunter2-key'}
    assert state == STATE
    changed = Secrets({'env': {'kwargs': {**CONFIG['env']['kwargs'], 'api_key': 'another, longer one'}}})
    state, _ = load_checkpoint(tmp_path / 'a', secrets=changed)
    assert state['key'] == 'another, longer one'


def test_without_its_secrets_a_state_shows_stars_or_is_refused_by_the_option_that_is_missing(
    tmp_path: Path,
) -> None:
    save_checkpoint(tmp_path / 'a', STATE, secrets=Secrets(CONFIG))
    assert load_checkpoint(tmp_path / 'a')[0]['key'] == '***'
    with pytest.raises(CheckpointError, match=r'env\.kwargs\.api_key'):
        load_checkpoint(tmp_path / 'a', secrets=Secrets({'env': {'kwargs': {'pwd': 'abc'}}}))


def test_texts_for_people_show_stars_also_where_a_secret_is_escaped() -> None:
    secrets = Secrets({'password': 'a"b\\ä', 'api_key': 'sk-12345', 'token': 'xy'})
    text = 'sk-12345 ' + repr({'p': 'a"b\\ä'}) + ' "a\\"b\\\\\\u00e4" xyz'
    assert secrets.scrub(text) == "*** {'p': '***'} \"***\" xyz"
    assert not Secrets({}) and Secrets({}).scrub('x') == 'x' and Secrets({}).name_of('x') is None


def test_keys_in_the_environment_are_secrets_that_nobody_has_to_give_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('WANDB_API_KEY', 'hunter2-key')
    secrets = Secrets({})
    assert secrets.scrub('refused: hunter2-key') == 'refused: ***' and secrets.given() == {}
    save_checkpoint(tmp_path / 'a', {'key': 'hunter2-key'}, secrets=secrets)
    assert b'hunter2' not in (tmp_path / 'a' / 'state.json').read_bytes()
    assert load_checkpoint(tmp_path / 'a', secrets=secrets)[0]['key'] == 'hunter2-key'


def test_what_was_redacted_can_be_given_again_whole() -> None:
    config = {'a': {'token': 'one1'}, 'list': [{'n': 1, 'pwd': 'two2'}], 'url': 'x://a:three@b'}
    assert Secrets(config).given() == {'a.token': 'one1', 'list': config['list'], 'url': 'x://a:three@b'}
