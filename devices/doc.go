// Package devices lists the CUDA devices that the driver shows to this process, and measures their
// load.
//
//	Found ──▶ Start ──▶ counting ──▶ counted ──▶ measuring ⇄ lost ──▶ closed
//	                        │  no device, or no answer        ▲
//	                        └──────────────▶ counted ─────────┘ (none)
//
// The supervisor loads no driver: it is one static file, and a driver that hangs or crashes would
// end the server as well. A separate process, the device helper (stub/nereid_devices), uses the
// driver's API to count the devices, because only the driver knows which ones CUDA_VISIBLE_DEVICES
// hides and in which order, and NVML to measure their load. It creates no context and takes no
// device memory, and no model's process descends from it.
//
// Found looks for a driver in microseconds, and without one nothing is started. Start returns at
// once; the first helper counts meanwhile, for at most Config.CountTimeout. Its result holds until
// Close, even if the helper is lost. A helper that dies, or does not reply in time, is killed and
// restarted after a pause; until then there are no samples. If the kernel cannot end it, because a
// call of the driver hangs, it is abandoned and no other helper is started. If nothing has to be
// measured, the helper ends after the count. Close ends the helper and waits for it; if the server
// is killed, the kernel ends the helper by its lifeline.
//
// Copies: a Copier has a lane for each device. A lane is a process of the same program, with a
// context, which copies between its device and the pool of requests, one command at a time. It
// holds open the memory that clients have registered (holding.go), until the last Release of a
// foreign.Device; a separate goroutine tells the process of that end, after the current copy.
//
// A process that dies, does not reply in time, or has a broken context is ended. The next command
// starts a new one, which reopens the held memory. The failed command's request gets an error.
// Other devices have other processes and contexts and are not affected.
//
// A command that times out fails the commands that wait behind it. Until a command succeeds, those
// that arrive while one is tried fail at once (queue.go). Waiting commands hold no memory, and end
// with their requests.
//
// Locks: the turn of a lane's queue is held for one command of its process; queue.mu is held
// briefly, with the turn or without. Devices.mu guards the current helper and is held for one
// exchange with it, at most for Config.SampleTimeout. Only locks of package launch are taken
// meanwhile.
//
// The root package starts and closes Devices. Any goroutine may call List, Usable and Samples; the
// first two wait for the count. A nil Devices has no devices.
//
// The device helper shares no memory with the server. The processes of a Copier map the pool of
// requests, and touch there only the block that their command names. A block is free again when no
// process can touch it any more. A line of a helper is at most maxLine long.
package devices
