// Package notify tells a service manager how far the server is, by the protocol of sd_notify(3): datagrams with lines
// NAME=VALUE to the socket that the environment names. Without one a Manager does nothing.
//
//	Open ── starting ──── Ready ──── ready ──── Stopping ──── stopping ──── Close
//	        STATUS=                  READY=1                  STOPPING=1
//	        EXTEND_TIMEOUT_USEC=     WATCHDOG=1, where the    EXTEND_TIMEOUT_USEC=
//	        again and again          probe has succeeded      once, for all of the end
//
// States: as drawn; Stopping may come before Ready, and is the last. Messages of a state that has passed are not sent.
//
// Goroutines: one, from Open to Close, which sends what is repeated, and asks the probe. Ready and Stopping send from the
// goroutine that calls them.
//
// Locks: Manager.mu is taken alone, and held while a datagram is sent, which waits for sendLimit at most: so no message
// overtakes that of a later state.
//
// Callers: package cli. The methods of a nil Manager may be called.
//
// Memory: nothing is kept that grows.
package notify
