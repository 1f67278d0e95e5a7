package flags

import (
	"slices"

	"github.com/nereid-serving/nereid/cli/command"
)

// flag is one row of the command line.
type flag struct {
	name  string
	value string // what --help calls its value; empty if it takes none
	help  string // one or a few sentences
	set   func(p *parser, text string) error
}

// wholeHelp says whether anything acts on the flag, too.
func (f *flag) wholeHelp() string {
	if slices.Contains(noEffect, f.name) {
		return f.help + " Accepted without effect."
	}
	return f.help
}

// group is what --help shows under one heading.
type group struct {
	title string
	ours  bool // flags that tritonserver does not have
	flags []flag
}

// noEffect lists the flags that are read and checked, as Triton does, but on
// which nothing acts. A change that makes one act removes it here.
var noEffect = []string{
	"buffer-manager-thread-count",
	"cache-directory",
	"cuda-memory-pool-byte-size",
	"cuda-virtual-address-size",
	"enable-peer-access",
	"grpc-http2-max-ping-strikes",
	"grpc-http2-max-pings-without-data",
	"grpc-infer-allocation-pool-size",
	"grpc-infer-thread-count",
	"http-thread-count",
	"pinned-memory-pool-byte-size",
	"repoagent-directory",
	"sagemaker-thread-count",
	"vertex-ai-thread-count",
}

// flagTable is every flag, in the order in which --help shows them and an
// ambiguous prefix lists them.
func flagTable() []group {
	return slices.Concat(serverFlags(), endpointFlags(), backendFlags(), deprecatedFlags(), ourFlags())
}

// Describe returns every flag of the server, in the order of --help, each with the heading that it stands under.
func Describe() []command.Flag {
	var list []command.Flag
	for _, g := range flagTable() {
		title := g.title
		if title == "" {
			title = "General"
		}
		for _, f := range g.flags {
			list = append(list, command.Flag{Group: title, Name: f.name, Value: f.value, Help: f.wholeHelp(), Models: f.name == "load-model"})
		}
	}
	return list
}
