"""The official Anthropic client, changed by base URL and key alone."""

import asyncio

import anthropic
import pytest

from conftest import CLIENT_KEY, assert_throttled

ASK = [{"role": "user", "content": "Say hello."}]
TEXT = "Hello from the first provider."
WEATHER = {
    "name": "weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
USUAL = {"max_tokens": 64, "messages": ASK}


@pytest.fixture
def client(gateway):
    with anthropic.Anthropic(base_url=gateway.url, api_key=CLIENT_KEY) as client:
        yield client


def test_a_message_is_answered(client, request_id):
    raw = client.messages.with_raw_response.create(
        model="claude-good", extra_headers={"x-request-id": request_id}, **USUAL
    )
    answer = raw.parse()
    assert answer.content[0].text == TEXT
    assert answer.stop_reason == "end_turn"
    assert raw.headers["x-request-id"] == request_id
    assert raw.headers["x-rondo-route"] == "anthropic"
    assert raw.headers["x-rondo-target"] == "first"


# R-X4
def test_a_message_streams(client):
    with client.messages.stream(model="claude-good", **USUAL) as stream:
        texts = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(texts) == TEXT and len(texts) > 1
    assert final.content[0].text == TEXT
    assert final.usage.output_tokens > 0


def test_tool_calls_are_assembled_from_a_stream(client):
    with client.messages.stream(model="claude-tools", tools=[WEATHER], **USUAL) as stream:
        final = stream.get_final_message()
    (call,) = [block for block in final.content if block.type == "tool_use"]
    assert (call.name, call.input) == ("weather", {"city": "Paris"})
    assert final.stop_reason == "tool_use"


def test_tokens_are_counted(client):
    assert client.messages.count_tokens(model="claude-good", messages=ASK).input_tokens > 0


# R-F1
def test_a_throttled_target_is_passed_over(client):
    raw = client.messages.with_raw_response.create(model="claude-failover", **USUAL)
    assert raw.parse().content[0].text == TEXT
    assert raw.headers["x-rondo-target"] == "second"
    assert raw.headers["x-rondo-attempts"] == "2"
    assert raw.retries_taken == 0


# R-F1 R-A4
def test_a_throttled_target_is_passed_over_before_a_stream(client):
    with client.messages.stream(model="claude-failover", **USUAL) as stream:
        assert stream.response.headers["x-rondo-target"] == "second"
        assert "".join(stream.text_stream) == TEXT


# R-S20 R-P1
def test_a_final_throttle_is_the_clients_own_error(client):
    with pytest.raises(anthropic.RateLimitError) as caught:
        client.with_options(max_retries=0).messages.create(model="claude-exhausted", **USUAL)
    assert caught.value.status_code == 429
    assert caught.value.body["error"]["type"] == "rate_limit_error"
    assert_throttled(caught.value.response.headers, seconds=7, reason="exhausted")


# R-S5 R-S16
def test_a_second_round_succeeds_within_one_call(client):
    raw = client.with_options(max_retries=0).messages.with_raw_response.create(model="claude-second-round", **USUAL)
    assert raw.parse().content[0].text
    assert raw.headers["x-rondo-round"] == "2"
    assert raw.headers["x-rondo-attempts"] == "3"


# R-S11 R-S21
def test_the_clients_own_retries_get_no_second_round(client, gateway, request_id):
    route = {"route": "anthropic-rounds"}
    waits = gateway.metric("rondo_exhaustion_waits_total", **route)
    suppressed = gateway.metric("rondo_exhaustion_suppressions_total", reason="caller_retry", **route)
    with pytest.raises(anthropic.RateLimitError) as caught:
        client.with_options(max_retries=2).messages.create(
            model="claude-rounds", extra_headers={"x-request-id": request_id}, **USUAL
        )
    assert_throttled(caught.value.response.headers, seconds=1, reason="caller_retry")
    gateway.settle()
    assert gateway.metric("rondo_exhaustion_waits_total", **route) - waits == 1
    suppressions = gateway.metric("rondo_exhaustion_suppressions_total", reason="caller_retry", **route)
    assert suppressions - suppressed == 2
    assert [line["rounds"] for line in gateway.lines(request_id)] == ["2", "1", "1"]


# R-D3
def test_an_unknown_model_is_not_found(client):
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(model="claude-nowhere", **USUAL)
    assert caught.value.body["error"]["type"] == "not_found_error"
    assert "claude-nowhere" in str(caught.value)


# R-D4 R-X4
def test_a_client_that_stops_reading_ends_the_upstream(client, gateway):
    cancelled = gateway.metric("rondo_requests_total", route="anthropic", outcome="cancelled")
    with client.messages.stream(model="claude-slow", **USUAL) as stream:
        for number, _ in enumerate(stream.text_stream):
            if number == 3:
                break
    gateway.settle()
    assert gateway.metric("rondo_requests_total", route="anthropic", outcome="cancelled") - cancelled == 1


def test_models_are_listed(client):
    models = {model.id: model for model in client.models.list()}
    assert {"claude-good", "claude-failover"} <= models.keys()
    assert models["claude-good"].display_name == "claude-good"


def test_the_async_client(gateway):
    async def all_at_once():
        async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=CLIENT_KEY) as client:
            async def unary():
                return (await client.messages.create(model="claude-good", **USUAL)).content[0].text

            async def streamed():
                async with client.messages.stream(model="claude-failover", **USUAL) as stream:
                    return "".join([text async for text in stream.text_stream])

            async def left():
                async with client.messages.stream(model="claude-slow", **USUAL) as stream:
                    async for _ in stream.text_stream:
                        return TEXT

            return await asyncio.gather(*[call() for call in (unary, streamed, left) for _ in range(8)])

    assert set(asyncio.run(all_at_once())) == {TEXT}
