"""What the agent itself reads and writes in ZooKeeper.

Its registration and incarnation, the ISR of partitions it leads, settings of topics and brokers, blocks of producer
ids.

Comes in:   sessions that begin and end, ISR changes that leaders propose, watches on settings.
Goes out:   writes that are fenced by the incarnation or by the state znode's version; settings to the data loop.
Hands out:  Registration, IsrWriter, TopicConfigs, ProducerIds. The ports they fulfil stand in `broker_agent.ports`.
Imports:    `regency.runtime.zookeeper` and znode codecs of `regency.model.znodes`; nothing of `log` or
            `replication`.
Threads:    one of its own for each that waits for ZooKeeper: the data loop never does.
"""
