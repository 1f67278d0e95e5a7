// Package devices knows the CUDA devices of this machine: which the driver shows to this
// process, and how busy they are.
//
//	Found ──▶ Start ──▶ counting ──▶ counted ──▶ measuring ⇄ lost ──▶ closed
//	                        │  no device, or no answer        ▲
//	                        └──────────────▶ counted ─────────┘ (none)
//
// The supervisor loads no driver: it is one static file, and a driver that hangs or
// crashes would take the server along. A process of its own asks, the device helper
// (stub/nereid_devices): by the driver's API how many devices there are, since only the driver
// knows what CUDA_VISIBLE_DEVICES hides and orders, and by NVML how busy they are. It makes no
// context, takes no memory of a device, and no process of a model descends from it.
//
// Lives: Found looks for a driver in microseconds, and without one nothing is
// started. Start returns at once; the first helper counts meanwhile, for at most
// Config.CountTimeout. What it counted holds until Close, whatever becomes of the helper.
// A helper that dies, or does not answer in time, is killed and started again after a
// pause; until then there are no samples. One that the kernel does not end, as a call of the
// driver hangs, is left behind, and no other is started. Where nothing is to be measured the helper ends
// when it has counted. Close ends the helper and waits for it; if the server is killed,
// the kernel ends the helper by its lifeline.
//
// Copies: a Copier has a lane for each device: a process of the same program, with a context, which
// copies between its device and the pool of requests, one command at a time. What clients have registered
// it holds open (holding.go), up to the last Release of a foreign.Device: its end is told to the process by a
// goroutine of its own, and waits for the copy under way. A process that dies, does not answer in time, or whose context
// fails whatever it is asked is ended and replaced with the next command; the new one opens anew what was held.
// Its request gets an error. The other devices do not notice: their processes and contexts are others.
//
// A command that has no answer in time fails those that wait behind it, and until one has an answer others that come
// while it is tried fail at once (queue.go). What waits holds no memory, and ends with its request.
//
// Locks: the turn of a lane's queue is held for one command of its process; queue.mu for a moment, with the turn or without. Devices.mu guards which helper runs and is held for one exchange with it, so at most
// for Config.SampleTimeout. No other lock is taken meanwhile but those of package launch.
//
// Callers: the root package starts and closes it. List and Usable wait for the count and
// may be called by any goroutine, as Samples may. All methods of a nil Devices say that there are
// none.
//
// Memory: no memory is shared with the device helper; the processes of a Copier map the pool of requests, and
// touch there the block that their command names. A block is free again when no process can touch it any more. A line of it is bounded by maxLine.
package devices
