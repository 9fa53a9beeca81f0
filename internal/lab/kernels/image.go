package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// userlandSuite is the release of Debian whose programs the guests have, whichever kernel they run.
const userlandSuite = "bookworm"

// userlandPackages are what the tests execute. The compilers build the programs that tests inspect.
var userlandPackages = []string{"bash", "binutils", "coreutils", "dash", "gcc", "grep", "kmod", "libc6-dev",
	"make", "mount", "musl-tools", "openjdk-17-jre-headless", "sed", "util-linux"}

// userlandFiles are what the scripts of these packages would create, and the users.
var userlandFiles = map[string]string{
	"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
	"etc/group":  "root:x:0:\nnogroup:x:65534:\n",
	"etc/hosts":  "127.0.0.1 localhost\n",
}

// userlandLinks are the links that Debian's installer and its alternatives create. ARCH stands for the
// architecture.
var userlandLinks = map[string]string{
	"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "usr/bin/cc": "gcc",
	"usr/bin/java": "../lib/jvm/java-17-openjdk-ARCH/bin/java",
}

// unused are parts of these packages that nothing uses and that would fill the guest's memory.
var unused = []string{"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/i18n",
	"usr/lib/gcc/*/*/lto*", "usr/lib/gcc/*/*/*san*", "usr/lib/*/lib*san.so*", "usr/lib/gcc/*/*/plugin",
	"usr/bin/*lto-dump*", "usr/bin/*gprof*", "usr/lib/*/gconv", "usr/lib/*/libgprofng*", "usr/lib/*/perl-base"}

// makeUserland returns the directory of the programs of a guest, which is named after what is in
// it.
func makeUserland(dir, arch string) (root string, err error) {
	contents := sha256.Sum256(fmt.Append(nil, userlandSuite, userlandPackages, userlandFiles, userlandLinks, unused))
	root = filepath.Join(dir, fmt.Sprintf("userland-%s-%x", arch, contents[:4]))
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	a, err := openArchive(dir, arch, userlandSuite)
	if err != nil {
		return "", err
	}
	packages, err := a.resolve(userlandPackages...)
	if err != nil {
		return "", err
	}
	return root, replaceDir(root, func(root string) error { return fillUserland(root, a, packages) })
}

func fillUserland(root string, a *archive, packages []string) error {
	for _, dir := range []string{"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc", "root"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for name, target := range userlandLinks {
		target = strings.ReplaceAll(target, "ARCH", a.arch)
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	for name, content := range userlandFiles {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	if err := a.unpack(root, packages...); err != nil {
		return err
	}
	for _, pattern := range unused {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := os.RemoveAll(file); err != nil {
				return err
			}
		}
	}
	return nil
}

func writeArchive(file, root string) error {
	const pack = `find . -mindepth 1 -print0 | cpio --null --create --quiet --format=newc --owner=+0:+0 > "$0"`
	partial := file + ".partial"
	if _, err := output(root, "bash", "-o", "pipefail", "-c", pack, partial); err != nil {
		return fmt.Errorf("packing %s: %w", root, err)
	}
	return os.Rename(partial, file)
}

// Where the guest has the checkout, the compiled tests, and modules of its kernel.
const (
	sourceDir  = "/src"
	testsDir   = "/tests"
	modulesDir = "/modules"
)

// guestTag is the build tag of tests that change the machine for good, so that they may run nowhere
// else.
const guestTag = "guest"

// modules are what tests mount. The rest that they need is built into the kernels.
var modules = []string{"overlay", "fuse"}

// copyModules copies modules of a kernel, decompressed, to modulesDir.
func copyModules(root, kernel string) error {
	if err := os.Mkdir(filepath.Join(root, modulesDir), 0o755); err != nil {
		return err
	}
	for _, name := range modules {
		found, err := output(kernel, "find", ".", "-name", name+".ko*")
		if err != nil {
			return err
		}
		for file := range strings.Lines(found) {
			const decompress = `case $0 in *.xz) xz --decompress --stdout "$0";; *) cat "$0";; esac > "$1"`
			target := filepath.Join(root, modulesDir, name+".ko")
			if _, err := output(kernel, "sh", "-c", decompress, strings.TrimSpace(file), target); err != nil {
				return fmt.Errorf("copying the module %s: %w", name, err)
			}
		}
	}
	return nil
}

// makeImage returns an initramfs with the programs, this program as its first process, the checkout
// and the compiled tests of packages, and the plan.
func (o *options) makeImage(k kernel, userland string, packages []string, p plan) (string, error) {
	programs := filepath.Join(o.dir, filepath.Base(userland)+".cpio")
	if _, err := os.Stat(programs); err != nil {
		if err := writeArchive(programs, userland); err != nil {
			return "", err
		}
	}
	root := filepath.Join(o.dir, "image-"+k.arch)
	err := replaceDir(root, func(root string) error {
		if err := copyModules(root, filepath.Join(o.cache, k.id)); err != nil {
			return err
		}
		return o.fillImage(root, userland, k.arch, packages, p)
	})
	if err != nil {
		return "", err
	}
	if err := writeArchive(root+".cpio", root); err != nil {
		return "", err
	}
	file := filepath.Join(o.dir, "initramfs-"+k.arch)
	if err := concatenate(file, programs, root+".cpio"); err != nil {
		return "", err
	}
	// A copy of the checkout within it, which tools would take for a part of it.
	return file, os.RemoveAll(root)
}

func (o *options) fillImage(root, userland, arch string, packages []string, p plan) error {
	text, err := json.MarshalIndent(p, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, planFile), text, 0o644); err != nil {
		return err
	}
	for _, dir := range []string{sourceDir, testsDir} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	programs, err := o.makePrograms(arch, userland)
	if err != nil {
		return err
	}
	const copyFiles = `git ls-files -z --cached --others --exclude-standard |
		cpio --null --pass-through --make-directories --preserve-modification-time --quiet "$0"`
	source := filepath.Join(root, sourceDir)
	if _, err := output(o.checkout, "bash", "-o", "pipefail", "-c", copyFiles, source); err != nil {
		return fmt.Errorf("copying the checkout: %w", err)
	}
	if _, err := output("", "cp", "--archive", programs, filepath.Join(source, "testdata/out")); err != nil {
		return err
	}
	environment := []string{"GOARCH=" + arch, "CGO_ENABLED=0"}
	build := append(environment, "go", "build", "-ldflags=-w", "-o", filepath.Join(root, "init"),
		"./internal/lab/kernels")
	if _, err := output(o.checkout, "env", build...); err != nil {
		return err
	}
	if o.files != "" {
		if _, err := output("", "cp", "--archive", o.files, filepath.Join(root, filesDir)); err != nil {
			return err
		}
	}
	if len(packages) == 0 {
		return nil
	}
	// Without DWARF, which is a third of the files, which are in the guest's memory.
	tests := append(environment, "go", "test", "-c", "-tags="+guestTag, "-ldflags=-w",
		"-o", filepath.Join(root, testsDir)+"/")
	if _, err := output(o.checkout, "env", append(tests, packages...)...); err != nil {
		return fmt.Errorf("compiling the tests for %s: %w", arch, err)
	}
	return nil
}

// concatenate writes archives into one file. The kernel unpacks all of them.
func concatenate(file string, parts ...string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() {
		if closing := out.Close(); err == nil {
			err = closing
		}
	}()
	for _, part := range parts {
		in, err := os.Open(part)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		in.Close()
		if err != nil {
			return fmt.Errorf("copying %s: %w", strings.TrimPrefix(part, filepath.Dir(file)), err)
		}
	}
	return nil
}
