from __future__ import annotations

import asyncio
import json

from regency.broker_agent.control.metadata_cache import BrokerNode, MetadataCache, MetadataChange, MetadataUpdate
from regency.broker_agent.metrics.probes import say_ready_once_known
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch

ME = BrokerId(3)


def names(*epochs: tuple[int, int]) -> MetadataUpdate:
    brokers = [BrokerNode(BrokerId(broker), BrokerEpoch(epoch), ()) for broker, epoch in epochs]
    return MetadataUpdate(ControllerEpoch(1), BrokerId(1), [MetadataChange(brokers)], 1, True, True, True)


def test_ready_is_said_once_metadata_names_this_incarnation(capsys, caplog) -> None:
    caplog.set_level("INFO")
    bound = {"PLAINTEXT": ("", 19092), "HTTP": ("127.0.0.1", 9404)}

    async def scenario() -> list[str]:
        metadata = MetadataCache()
        said: list[str] = []
        task = asyncio.ensure_future(
            say_ready_once_known(ME, {"PLAINTEXT": 9092}, bound, metadata, lambda: BrokerEpoch(7))
        )
        for update in (names((1, 5)), names((1, 5), (3, 6)), names((1, 5), (3, 7))):
            await asyncio.sleep(0)
            metadata.apply(update)
            for _ in range(5):
                await asyncio.sleep(0)
            said.append(capsys.readouterr().out)
        await task
        return said

    nothing, earlier, ready = asyncio.run(scenario())
    assert (nothing, earlier) == ("", "")
    assert json.loads(ready) == {"ready": True, "broker": 3, "ports": {"PLAINTEXT": 9092}}
    assert "ready: PLAINTEXT on *:19092, HTTP on 127.0.0.1:9404" in caplog.text


def test_a_broker_nobody_counts_on_says_so_once_and_waits_on(caplog, monkeypatch) -> None:
    monkeypatch.setattr("regency.broker_agent.metrics.probes.PATIENCE_MS", 1)

    async def scenario() -> None:
        metadata = MetadataCache()
        looks = 0
        wait_for = metadata.wait_for

        async def counted(predicate, timeout_ms: int) -> bool:
            nonlocal looks
            looks += 1
            if looks == 3:
                metadata.apply(names((3, 7)))
            return await wait_for(predicate, timeout_ms)

        monkeypatch.setattr(metadata, "wait_for", counted)
        await say_ready_once_known(ME, {}, {}, metadata, lambda: BrokerEpoch(7))

    asyncio.run(scenario())
    assert caplog.text.count("not ready") == 1
