// Package notify reports the server's state to a service manager by the protocol of sd_notify(3):
// datagrams with lines NAME=VALUE, sent to the socket that the environment names. Without such a
// socket a Manager is nil, and its methods do nothing.
//
//	Open ── starting ──── Ready ──── ready ──── Stopping ──── stopping ──── Close
//	        STATUS=                  READY=1                  STOPPING=1
//	        EXTEND_TIMEOUT_USEC=     WATCHDOG=1, where the    EXTEND_TIMEOUT_USEC=
//	        again and again          probe has succeeded      once, for all of the end
//
// Stopping may come before Ready, and is the last state. Messages of a past state are not sent.
//
// One goroutine, from Open to Close, repeats messages and runs the probe. Ready and Stopping send
// from their caller's goroutine. Manager.mu is held while a datagram is sent, for sendLimit at
// most, so no message overtakes one of a later state.
package notify
