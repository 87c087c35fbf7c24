package onewrite;

import java.net.URI;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** Where a database is: a path, as a URI of SQLite (percent-encoded), and the URI's parameters. */
final class Address {
    private static final String DRIVER = "jdbc:sqlite:";
    private static final String PLAIN = "/._-~";

    private final String path;
    private final Map<String, String> parameters = new LinkedHashMap<>();

    private Address(String path) {
        this.path = path;
    }

    /**
     * @param name a path, a URI ({@code file:...}), or a URL of the driver
     * @throws IllegalArgumentException if it has parameters, but no {@code file:}
     */
    static Address of(String name) throws OneWriteException {
        boolean isUrl = name.regionMatches(true, 0, DRIVER, 0, DRIVER.length());
        String given = isUrl ? name.substring(DRIVER.length()) : name;
        if (!given.startsWith("file:") && (Status.isMeantAsUri(given) || isUrl && given.contains("?"))) {
            throw new IllegalArgumentException(
                    name + " has parameters, but no \"file:\", so it names a file: use file:" + given);
        }
        Address address = given.startsWith("file:") ? ofUri(given) : new Address("file:" + encoded(given));
        if (given.isEmpty() || given.equals(":memory:") || address.isInMemory()) {
            throw new OneWriteException("a database in memory has no journal: open it with DriverManager");
        }
        return address;
    }

    private static Address ofUri(String uri) {
        String[] parts = uri.split("#", 2)[0].split("\\?", 2);
        Address address = new Address(parts[0]);
        String query = parts.length == 2 ? parts[1] : "";
        for (String parameter : query.split("&")) {
            String[] pair = parameter.split("=", 2);
            if (!parameter.isEmpty()) {
                address.parameters.put(pair[0], pair.length == 2 ? pair[1] : "");
            }
        }
        return address;
    }

    private static String encoded(String path) {
        StringBuilder text = new StringBuilder();
        // Two slashes would begin a host's name.
        for (byte each : path.replaceFirst("^/+", "/").getBytes(StandardCharsets.UTF_8)) {
            char letter = (char) each;
            boolean isPlain = each > 0 && (Character.isLetterOrDigit(letter) || PLAIN.indexOf(letter) >= 0);
            text.append(isPlain ? String.valueOf(letter) : String.format("%%%02X", each & 0xFF));
        }
        return text.toString();
    }

    private boolean isInMemory() {
        return path.equals("file:") || path.startsWith("file::memory:") || "memory".equals(parameters.get("mode"));
    }

    /** The path of its file. */
    String file() {
        try {
            return new URI(path).getSchemeSpecificPart();
        } catch (URISyntaxException error) {
            return path.substring("file:".length());
        }
    }

    /** The URI's parameters, which the caller may change. */
    Map<String, String> parameters() {
        return parameters;
    }

    /** The driver's URL, with these parameters first. */
    String url(Map<String, String> first) {
        Map<String, String> all = new LinkedHashMap<>();
        for (String name : new String[] {"vfs", "journal_mode", "synchronous", "onewrite_upgrade_wal"}) {
            if (first.containsKey(name)) {
                all.put(name, first.get(name));
            }
        }
        all.putAll(parameters);
        StringBuilder url = new StringBuilder(DRIVER).append(path);
        all.forEach((name, value) ->
                url.append(url.indexOf("?") < 0 ? '?' : '&').append(name).append('=').append(value));
        return url.toString();
    }

    @Override
    public String toString() {
        return path;
    }
}
