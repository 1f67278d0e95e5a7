// Package wire is what the server and the process of a plugin say to each other beyond
// docs/protocol.md: the handshake of go-plugin, and the bodies of AUTO_COMPLETE and INITIALIZE.
package wire

import "fmt"

// The cookie, which tells a plugin that a server has started it and not a user.
const (
	CookieKey   = "NEREID_BACKEND_PLUGIN"
	CookieValue = "8e4c1c1e6a0d4b0f9a57e9d2f3b6c1d4"
)

// Version is that of the contract between server and plugin: of docs/protocol.md as plugins use it, and
// of the bodies below. A plugin names the versions that it was built with, and is refused if the server's is none of them.
const Version = 3

// VersionsEnv is the variable with the versions that the server speaks, with commas between. The plugin chooses the highest
// that it speaks too; where there is none it says its own highest, and is refused.
const VersionsEnv = "PLUGIN_PROTOCOL_VERSIONS"

// Line is the first line that a plugin writes to its stdout, without its end: go-plugin's
// CORE|VERSION|network|address|protocol. Nobody dials the address.
func Line(version int) string { return fmt.Sprintf("1|%d|unix|none|%s", version, Protocol) }

// Protocol is the last field of the line: what is said from then on is docs/protocol.md, and no RPC.
const Protocol = "nereid"

// FilesEnv is the variable with the numbers of the descriptors, as process.Files.List orders them, with commas between; behind
// them those of stdout and stderr, which the plugin takes once it has written the line of the handshake.
const FilesEnv = "NEREID_BACKEND_FILES"

// Backend is what a backend learns when it is initialized.
type Backend struct {
	Name      string            `msgpack:"backend"`
	Directory string            `msgpack:"backend_directory"` // where its program lies
	Settings  map[string]string `msgpack:"settings"`          // of --backend-config, merged
	Message   string            `msgpack:"backend_config"`    // the same as Triton's backends get it: {"cmdline":{…}}
}

// Model is what a model version of it learns.
type Model struct {
	Name         string `msgpack:"model"`
	Version      int64  `msgpack:"version"`
	Directory    string `msgpack:"model_directory"` // of the model; Directory/Version has its files
	Config       string `msgpack:"config"`          // JSON, in the form of the config endpoint
	AutoComplete bool   `msgpack:"auto_complete"`   // it may complete its config
}

// Instance is what an instance learns.
type Instance struct {
	Name       string            `msgpack:"instance"`
	Kind       string            `msgpack:"kind"` // CPU, GPU or MODEL
	Device     int32             `msgpack:"device"`
	Profiles   []string          `msgpack:"profiles"`
	Secondary  []SecondaryDevice `msgpack:"secondary"`
	Passive    bool              `msgpack:"passive"`
	HostPolicy string            `msgpack:"host_policy"` // JSON
}

// SecondaryDevice is one of the devices that a group's config names beside its own.
type SecondaryDevice struct {
	Kind   string `msgpack:"kind"`
	Device int64  `msgpack:"device"`
}
