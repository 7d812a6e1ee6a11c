"""Elections that someone or something asks for, beside those that a broker's failure brings.

Preferred leaders, by request or for balance; leaders that leave with a broker in a controlled shutdown; the replica
with the longest log, once those that live have told how far theirs go. The rules themselves are in `state.election`.

Comes in:   ElectLeaders, LeaderBalanceDue, ControlledShutdown, LogEndsTold, InquiriesDue, LogsUnheard.
Goes out:   transitions of the partition state machine.
Hands out:  the handlers that `routes` names.
Imports:    `brokers` and the term.
Threads:    the controller's.
"""
