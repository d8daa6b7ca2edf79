"""Which keys and texts hold secrets, and that they are left out and put back."""

from __future__ import annotations

from typing import Any

import rlframe.registry as registries
from rlframe.utils.field import Field
from rlframe.utils.secrets import is_secret_name, redacted, redacted_keys, secret_options

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


def test_what_was_redacted_can_be_given_again_whole() -> None:
    config = {'a': {'token': 'one1'}, 'list': [{'n': 1, 'pwd': 'two2'}], 'url': 'x://a:three@b'}
    assert secret_options(config) == {'a.token': 'one1', 'list': config['list'], 'url': 'x://a:three@b'}
