package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	mirror  = "http://deb.debian.org/"
	keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
)

// An archive is a release of Debian for one architecture. Its lists and packages are below a
// directory of its own: neither the configuration nor the state of the host's apt is used. What
// comes is signed by Debian's keys.
type archive struct {
	dir, arch string
}

// openArchive downloads the present lists of a release.
func openArchive(dir, arch, suite string) (*archive, error) {
	a := &archive{dir: filepath.Join(dir, "apt", arch+"-"+suite), arch: arch}
	lists := filepath.Join(a.dir, "lists")
	etc := filepath.Join(a.dir, "etc")
	for _, dir := range []string{etc, filepath.Join(lists, "partial"), filepath.Join(a.dir, "cache/archives/partial")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	sources := fmt.Sprintf("deb [signed-by=%s] %sdebian %s main\n", keyring, mirror, suite)
	if suite != "sid" { // where there are no older releases to mend
		sources += fmt.Sprintf("deb [signed-by=%s] %sdebian-security %s-security main\n", keyring, mirror, suite)
	}
	for name, content := range map[string]string{
		"etc/sources.list": sources, "status": "", "apt.conf": fmt.Sprintf("Dir::Etc %q;\n", etc),
	} {
		if err := os.WriteFile(filepath.Join(a.dir, name), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	if _, err := a.apt("", "update", "--error-on=any"); err != nil {
		return nil, fmt.Errorf("downloading the package lists of %s for %s: %w", suite, arch, err)
	}
	return a, nil
}

// apt runs apt-get in a directory and returns its output. No package is installed as far as it
// knows, so that dependencies are complete.
func (a *archive) apt(dir string, args ...string) (string, error) {
	options := []string{"APT_CONFIG=" + filepath.Join(a.dir, "apt.conf"), "apt-get", "--quiet=2",
		"--no-install-recommends",
		"-o", "Dir::State=" + a.dir, "-o", "Dir::State::status=" + filepath.Join(a.dir, "status"),
		"-o", "Dir::Cache=" + filepath.Join(a.dir, "cache"),
		"-o", "APT::Architecture=" + a.arch, "-o", "APT::Architectures=" + a.arch,
		// A mirror that is not kept up, or keeps what there once was, has lists that are no longer valid.
		// Which of Debian's kernels is tested is no matter of security, and an old QEMU runs our guests alone.
		"-o", "Acquire::Check-Valid-Until=false",
		// The user _apt cannot write to a checkout in somebody's home directory.
		"-o", "APT::Sandbox::User=root"}
	return output(dir, "env", append(options, args...)...)
}

var archiveFile = regexp.MustCompile(`(?m)^'[^']*' ((\S+?)_\S+\.deb) `)

// resolve returns the names of packages and of all that they depend on.
func (a *archive) resolve(packages ...string) (names []string, err error) {
	list, err := a.apt("", append([]string{"install", "--print-uris"}, packages...)...)
	if err != nil {
		return nil, fmt.Errorf("resolving %v: %w", packages, err)
	}
	for _, match := range archiveFile.FindAllStringSubmatch(list, -1) {
		names = append(names, match[2])
	}
	return names, nil
}

// unpack downloads packages and unpacks them into a directory. No script of theirs is run.
func (a *archive) unpack(dir string, packages ...string) error {
	debs, err := os.MkdirTemp(a.dir, "debs")
	if err != nil {
		return err
	}
	defer os.RemoveAll(debs)
	if _, err := a.apt(debs, append([]string{"download"}, packages...)...); err != nil {
		return fmt.Errorf("downloading %v: %w", packages, err)
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	for _, file := range files {
		// dpkg-deb --extract would replace links to directories by directories.
		const extract = `dpkg-deb --fsys-tarfile "$0" | tar --extract --keep-directory-symlink --directory "$1"`
		if _, err := output("", "sh", "-c", extract, file, dir); err != nil {
			return fmt.Errorf("unpacking %s: %w", filepath.Base(file), err)
		}
	}
	return nil
}

// kernelPackage matches the packages with a kernel's image and modules: one package until trixie,
// three later. What follows the kind is what uname -r prints.
var kernelPackage = regexp.MustCompile(`^linux-(?:image|binary|modules)-([0-9].*-cloud-(?:amd64|arm64))$`)

func packagesOf(k kernel, names []string) (packages []string, err error) {
	for _, name := range names {
		match := kernelPackage.FindStringSubmatch(name)
		if match == nil {
			continue
		}
		if !hasVersion(k.id, match[1]) {
			return nil, fmt.Errorf("the kernel of %s is %s now: "+
				"rename %s in internal/lab/kernels (kernels.go, steps.go) and in docs/kernels.md",
				k.suite, match[1], k.id)
		}
		packages = append(packages, name)
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("no kernel in %s for %s", k.suite, k.arch)
	}
	return packages, nil
}

// fetchKernel returns the file of the newest kernel of its release.
func fetchKernel(dir string, k kernel) (image string, err error) {
	root := filepath.Join(dir, k.id)
	if image, err := findImage(root); err == nil {
		return image, nil
	}
	a, err := openArchive(dir, k.arch, k.suite)
	if err != nil {
		return "", err
	}
	all, err := a.resolve("linux-image-cloud-" + k.arch)
	if err != nil {
		return "", err
	}
	packages, err := packagesOf(k, all) // before they are downloaded
	if err != nil {
		return "", err
	}
	if err := replaceDir(root, func(dir string) error { return a.unpack(dir, packages...) }); err != nil {
		return "", err
	}
	return findImage(root)
}

// findImage returns the kernel among the files of its packages, which have moved it since trixie.
func findImage(root string) (string, error) {
	var found []string
	for _, pattern := range []string{"boot/vmlinuz-*", "usr/lib/modules/*/vmlinuz"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return "", err
		}
		found = append(found, files...)
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%s has %d images of a kernel, not one", root, len(found))
	}
	return found[0], nil
}

// replaceDir creates a directory that is complete if it exists.
func replaceDir(path string, fill func(dir string) error) error {
	partial := path + ".partial"
	err := os.RemoveAll(partial)
	if err == nil {
		err = os.MkdirAll(partial, 0o755)
	}
	if err == nil {
		err = fill(partial)
	}
	if err == nil {
		err = os.RemoveAll(path)
	}
	if err != nil {
		return err
	}
	return os.Rename(partial, path)
}

// output runs a command in a directory. Its error has what the command printed as one.
func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", name, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
