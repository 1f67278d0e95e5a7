package budget

// Kind names a use of memory.
type Kind uint8

// The kinds. Blocks, Stacked, Padding and Cache lie in the pool of requests,
// Arenas in files that stubs write, all others on the Go heap.
const (
	Bodies        Kind = iota // small bodies, small tensors, structures of requests
	JSON                      // JSON texts of requests and replies, on the heap
	Decompression             // decompressed bodies and compressed replies, on the heap
	Replies                   // responses that wait for their client
	Connections               // connections of any use
	Transport                 // calls, windows and buffers of connections
	States                    // sequences, and their implicit states
	Blocks                    // the pool of requests, except the next three kinds
	Stacked                   // inputs of stacked batches
	Padding                   // zeros for the empty slots of batches
	Cache                     // responses in the cache
	Arenas                    // memory that stubs have reserved for their outputs
	Released                  // freed on the Go heap, and not yet known to be reusable
	Frames                    // strings, errors and small tensors from models, and the frames that hold them
	kinds
)

// Kinds is the number of kinds.
const Kinds = int(kinds)

// share is a kind's part of an account, in 64ths of the limit.
type share struct {
	name string
	own  int64 // reserved for the kind
	most int64 // the maximum
	heap bool  // freed memory stays part of the process for a while
	body bool  // contains bodies of requests: large ones are rejected while memory is short
}

// shares are the parts of the kinds. Three quarters of the limit are common. The rest is reserved
// for the last steps of a request, when its inputs have taken memory, and for small requests beside
// large ones. The cache's share is Config.Cache, in addition to the limit.
var shares = [kinds]share{
	Bodies:        {name: "bodies", own: 2, most: 48, heap: true, body: true},
	JSON:          {name: "json", own: 2, most: 48, heap: true, body: true},
	Decompression: {name: "decompression", own: 1, most: 32, heap: true, body: true},
	Replies:       {name: "replies", own: 2, most: 32, heap: true},
	Connections:   {name: "connections", own: 1, most: 16, heap: true},
	Transport:     {name: "transport", own: 1, most: 16, heap: true},
	States:        {name: "states", own: 1, most: 16, heap: true},
	Blocks:        {name: "blocks", own: 0, most: 64},
	Stacked:       {name: "stacked", own: 1, most: 32},
	Padding:       {name: "padding", own: 1, most: 16},
	Cache:         {name: "cache"},
	Arenas:        {name: "arenas", own: 3, most: 48},
	Released:      {name: "released", own: 0, most: 64},
	Frames:        {name: "frames", own: 1, most: 16, heap: true},
}

// String returns the label of the kind in the metrics.
func (k Kind) String() string {
	if k >= kinds {
		return "unknown"
	}
	return shares[k].name
}
