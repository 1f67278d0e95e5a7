// Command generate compiles the .proto files of the current directory to Go
// with protoc-gen-go and protoc-gen-go-grpc, which go.mod pins as tools. It
// needs no protoc.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// serviceDirectory is where the code of services goes.
const serviceDirectory = "grpcservice/"

func main() {
	if err := generate(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate(files []string) error {
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(context.Background(), files...)
	if err != nil {
		return err
	}
	all := inOrder(compiled)
	if err := run("protoc-gen-go", "paths=source_relative", files, all); err != nil {
		return err
	}
	messages, services := split(all)
	return run("protoc-gen-go-grpc", "paths=source_relative,require_unimplemented_servers=true", services, messages)
}

// inOrder returns the files with those that they import: plugins want each file after its imports.
func inOrder(compiled linker.Files) (files []*descriptorpb.FileDescriptorProto) {
	seen := map[string]bool{}
	var add func(f linker.File)
	add = func(f linker.File) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(compiled.FindFileByPath(f.Imports().Get(i).Path()))
		}
		files = append(files, protoutil.ProtoFromFileDescriptor(f))
	}
	for _, f := range compiled {
		add(f)
	}
	return files
}

// split moves each file's services into a file of its own, in Go package "grpcservice" below that
// of the messages. Programs that only use messages then do not link gRPC.
func split(files []*descriptorpb.FileDescriptorProto) (all []*descriptorpb.FileDescriptorProto, services []string) {
	for _, f := range files {
		messages := proto.CloneOf(f)
		messages.Service = nil
		all = append(all, messages)
		if len(f.Service) == 0 {
			continue
		}
		service := proto.CloneOf(f)
		service.Name = proto.String(serviceDirectory + f.GetName())
		service.Options.GoPackage = proto.String(path.Join(f.GetOptions().GetGoPackage(), serviceDirectory))
		service.Dependency = append(service.Dependency, f.GetName())
		service.MessageType, service.EnumType = nil, nil
		all = append(all, service)
		services = append(services, service.GetName())
	}
	return all, services
}

// run has a plugin generate the code of the named files.
func run(plugin, parameter string, names []string, files []*descriptorpb.FileDescriptorProto) error {
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: names, Parameter: &parameter, ProtoFile: files}
	input, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", plugin, err)
	}
	response := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(output, response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s: %s", plugin, response.GetError())
	}
	for _, f := range response.File {
		// The descriptions that are registered name the original file.
		content := strings.ReplaceAll(f.GetContent(), serviceDirectory+"grpc_service.proto", "grpc_service.proto")
		if err := os.WriteFile(f.GetName(), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
