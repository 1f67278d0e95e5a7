package shm

// The layout of a channel's two files. The stub reads it by offset: every
// number here is part of the protocol (docs/protocol.md).
const (
	Magic   uint32 = 0x3144524e // "NRD1"
	Version uint32 = 2

	// Words of either file's first page.
	MagicOffset   = 0x000
	VersionOffset = 0x004
	LifeOffset    = 0x008
	TailOffset    = 0x040
	PostedOffset  = 0x048
	SleepOffset   = 0x080
	HeadOffset    = 0x0c0
	ReturnOffset  = 0x100 // down: tickets published; up: tickets collected
	AheadOffset   = 0x140 // down: batch that was withdrawn; up: batch handed ahead that was begun
	GrantOffset   = 0x180 // down: bytes that the stub may reserve, 0 for all; up: bytes that it wants to
	AskedOffset   = 0x188 // up: how often it has asked; down: the last of these that was answered

	ReturnRingOffset = 0x1000 // down only
	ReturnRingSlots  = 4096

	RingOffset  = 0x10000
	RingSize    = 128 << 10
	ArenaOffset = RingOffset + RingSize // up only

	// DownSize is the size of a down file.
	DownSize = RingOffset + RingSize
)

// PageSize is the granularity of blocks and reservations.
const PageSize = 4096

// roundUp rounds n up to a multiple of step, a positive number.
func roundUp(n, step int64) int64 { return (n + step - 1) / step * step }
