"""`tidemill redis` without a server: placeholders, the stock command, and replies a person can read."""

from __future__ import annotations

import msgpack
import numpy as np

from broker.tensors import write_tensor
from deploy.redis_command import expanded, stock_command
from deploy.redis_reply import shown, shown_reply


def test_placeholders_stand_for_the_run_and_a_group() -> None:
    assert expanded(["XLEN", "tm:{}:scored"], "demo-1") == ["XLEN", "tm:{demo-1}:scored"]
    assert expanded(["HGETALL", "tm:{}:group:{group}"], "demo-1", "a/0/7") == ["HGETALL", "tm:{demo-1}:group:a/0/7"]
    assert expanded(["HGETALL", "tm:{fleet}:said"], "demo-1") == ["HGETALL", "tm:{demo-1.fleet}:said"]


def test_the_stock_command_is_complete() -> None:
    words = ["XLEN", "tm:{demo-1}:scored"]
    assert (
        stock_command("unix:///a b/redis.sock", words) == "redis-cli -3 -s '/a b/redis.sock' XLEN 'tm:{demo-1}:scored'"
    )
    assert stock_command("redis://h:1/0", ["PING"]) == "redis-cli -3 -u redis://h:1/0 PING"
    assert stock_command("redis://:secret@h:1/0", ["PING"]) == "REDISCLI_AUTH=… redis-cli -3 -u redis://h:1/0 PING"
    assert stock_command(
        "rediss://me:se%2Fcret@h:1/2?ssl_ca_certs=/ca.pem&ssl_certfile=/me.pem&ssl_keyfile=/k", ["PING"]
    ) == ("REDISCLI_AUTH=… redis-cli -3 -h h -p 1 -n 2 --user me --tls --cacert /ca.pem --cert /me.pem --key /k PING")
    assert stock_command("redis://h/0?password=secret", ["PING"]) == "REDISCLI_AUTH=… redis-cli -3 -u redis://h/0 PING"


def test_replies_look_as_in_redis_cli() -> None:
    reply = [b"1-0", [b"group", b"a/0/1"], 3, None, []]
    assert shown(reply) == ('1) "1-0"\n2) 1) "group"\n   2) "a/0/1"\n3) (integer) 3\n4) (nil)\n5) (empty array)')
    assert shown([{b"name": b"rollout", b"lag": 0}]) == '1) 1# "name" => "rollout"\n   2# "lag" => (integer) 0'
    assert shown([1.5, True, {}]) == "1) (double) 1.5\n2) (true)\n3) (empty hash)"
    assert shown(b'say "hi"\n') == '"say \\"hi\\"\\n"'
    assert shown(b"\x00\xff") == '"\\x00\\xff"'
    assert shown("12 + 34 → 46".encode()) == '"12 + 34 → 46"'


def test_the_fields_of_a_stream_entry_are_pairs() -> None:
    reply = [[b"1-0", [b"group", b"a/0/1", b"kind", b"train"]], [b"2-0", [b"group", b"a/0/2"]]]
    assert shown(reply).splitlines() == [
        '1) "1-0"',
        '   1# "group" => "a/0/1"',
        '   2# "kind" => "train"',
        '2) "2-0"',
        '   1# "group" => "a/0/2"',
    ]
    pending = [b"1-0", b"rollout-0.1", 158, 1]
    assert shown(pending).splitlines()[:2] == ['1) "1-0"', '2) "rollout-0.1"'], "no entry, though it begins with an id"


def test_tensors_are_numbers_and_what_is_nested_is_json() -> None:
    tensors = [
        write_tensor("logprobs", np.array([-0.5, -1.23456], np.float32)),
        write_tensor("spans", np.array([[0, 0, 4, 26], [1, 0, 4, 27]], np.int32)),
        write_tensor("mask", np.ones(100, np.uint8)),
        (b"body", msgpack.packb({"meta": {"difficulty": [1, "→"]}})),
    ]
    assert shown(dict(tensors)).splitlines() == [
        '1# "logprobs:f4" => [-0.5, -1.235]',
        '2# "spans:i4:2x4" => [[0, 0, 4, 26], [1, 0, 4, 27]]',
        '3# "mask:u1" => [1, 1, 1, 1, ..., 1, 1, 1, 1]',
        '4# "body" => {"meta": {"difficulty": [1, "→"]}}',
    ]
    assert shown_reply(["HGET", "tm:{demo}:group:a/0/1", "mask:u1"], b"\x01\x00") == "[1, 0]"


def test_a_field_that_is_not_what_its_name_says_is_shown_as_it_is() -> None:
    assert shown({b"logprobs:f4": b"\x00\x01\x02"}) == '1# "logprobs:f4" => "\\x00\\x01\\x02"'
    assert shown({b"spans:i4:2x4": b"\x00"}) == '1# "spans:i4:2x4" => "\\x00"'
    assert shown({b"body": b"\xc1"}) == '1# "body" => "\\xc1"'


def test_a_hash_comes_in_the_order_of_its_names() -> None:
    reply = {b"r10.text": b"k", b"r2.text": b"c", b"answer": b"46"}
    names = [line.split('"')[1] for line in shown_reply(["hgetall", "k"], reply).splitlines()]
    assert names == ["answer", "r2.text", "r10.text"]
