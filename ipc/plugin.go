package ipc

import "fmt"

// A Go backend is a plugin: a program that the server starts by the handshake of go-plugin. From
// then on both sides speak docs/protocol.md, with the AUTO_COMPLETE and INITIALIZE bodies below.

// The cookie shows a plugin that a server, not a user, has started it.
const (
	PluginCookieKey   = "NEREID_BACKEND_PLUGIN"
	PluginCookieValue = "8e4c1c1e6a0d4b0f9a57e9d2f3b6c1d4"
)

// PluginVersion is the version of the contract between server and plugin: docs/protocol.md as
// plugins use it, and the bodies below. A plugin is rejected if it was built for none of the
// server's versions.
const PluginVersion = 3

// PluginVersionsEnv is the variable with the server's versions, separated by commas. The plugin
// chooses the highest common version, or reports its own highest and is rejected.
const PluginVersionsEnv = "PLUGIN_PROTOCOL_VERSIONS"

// PluginLine returns the first line of a plugin's stdout, without its end: go-plugin's
// CORE|VERSION|network|address|protocol. The address is not used.
func PluginLine(version int) string {
	return fmt.Sprintf("1|%d|unix|none|%s", version, PluginProtocol)
}

// PluginProtocol is the last field of the line: docs/protocol.md instead of an RPC.
const PluginProtocol = "nereid"

// PluginFilesEnv is the variable with the numbers of the descriptors, separated by commas: those of
// process.Files.List, then stdout and stderr, which the plugin uses after it has written the line.
const PluginFilesEnv = "NEREID_BACKEND_FILES"

// PluginBackend describes a backend.
type PluginBackend struct {
	Name      string            `msgpack:"backend"`
	Directory string            `msgpack:"backend_directory"` // of its program
	Settings  map[string]string `msgpack:"settings"`          // of --backend-config, merged
	Message   string            `msgpack:"backend_config"`    // the same as Triton's backends get it: {"cmdline":{…}}
}

// PluginModel describes a version of a model.
type PluginModel struct {
	Name         string `msgpack:"model"`
	Version      int64  `msgpack:"version"`
	Directory    string `msgpack:"model_directory"` // of the model; Directory/Version has its files
	Config       string `msgpack:"config"`          // JSON, in the form of the config endpoint
	AutoComplete bool   `msgpack:"auto_complete"`   // it may complete its config
}

// PluginInstance describes an instance.
type PluginInstance struct {
	Name       string                  `msgpack:"instance"`
	Kind       string                  `msgpack:"kind"` // CPU, GPU or MODEL
	Device     int32                   `msgpack:"device"`
	Profiles   []string                `msgpack:"profiles"`
	Secondary  []PluginSecondaryDevice `msgpack:"secondary"`
	Passive    bool                    `msgpack:"passive"`
	HostPolicy string                  `msgpack:"host_policy"` // JSON
}

// PluginSecondaryDevice is another device in a group's config.
type PluginSecondaryDevice struct {
	Kind   string `msgpack:"kind"`
	Device int64  `msgpack:"device"`
}
